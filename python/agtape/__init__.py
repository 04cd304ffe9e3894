"""agtape: training by automatic differentiation, with a tape whose memory you can see and bound."""

from math import e, inf, nan, pi

from agtape import data, nn, optim, processes, testing, tree
from agtape._core import (
    BudgetError,
    DeviceError,
    Handle,
    Tensor,
    __version__,
    abs,
    add,
    all,
    allclose,
    any,
    arange,
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan,
    arctan2,
    arctanh,
    argmax,
    argmin,
    argsort,
    array_equal,
    asarray,
    astype,
    bernoulli,
    bfloat16,
    bitwise_and,
    bitwise_left_shift,
    bitwise_not,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    bool_,
    broadcast_arrays,
    broadcast_to,
    ceil,
    clear_plan_cache,
    clip,
    concat,
    cos,
    cosh,
    count_nonzero,
    cumprod,
    cumsum,
    detach,
    detect_anomaly,
    devices,
    diag,
    diagonal,
    divide,
    dot,
    dropout,
    dtype,
    einsum,
    empty,
    empty_cache,
    empty_like,
    enable_grad,
    equal,
    erf,
    eval,
    exp,
    expand_dims,
    expm1,
    eye,
    flatten,
    flip,
    float16,
    float32,
    float64,
    floor,
    floor_divide,
    from_dlpack,
    full,
    full_like,
    gelu,
    get_default_device,
    get_rng_state,
    grad_tape,
    greater,
    greater_equal,
    index_add,
    int32,
    int64,
    is_grad_enabled,
    isclose,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    linspace,
    log,
    log1p,
    log2,
    log10,
    log_softmax,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    logsumexp,
    manual_seed,
    matmul,
    matrix_transpose,
    max,
    maximum,
    mean,
    meshgrid,
    min,
    minimum,
    moveaxis,
    multiply,
    nan_to_num,
    negative,
    no_grad,
    nonzero,
    normal,
    not_equal,
    one_hot,
    ones,
    ones_like,
    outer,
    pad,
    param,
    peak_memory,
    permutation,
    permute,
    pow,
    prod,
    rand,
    randint,
    randn,
    reciprocal,
    relu,
    remainder,
    repeat,
    reset,
    reset_peak_memory,
    reshape,
    roll,
    round,
    rsqrt,
    scatter_add,
    set_default_device,
    set_rng_state,
    sigmoid,
    sign,
    silu,
    sin,
    sinh,
    softmax,
    softplus,
    sort,
    split,
    sqrt,
    square,
    squeeze,
    stack,
    std,
    subtract,
    sum,
    swapaxes,
    synchronize,
    take,
    take_along_axis,
    tan,
    tanh,
    tensor,
    tensordot,
    tile,
    topk,
    trace,
    transpose,
    tril,
    triu,
    trunc,
    uint8,
    uniform,
    unstack,
    var,
    vecdot,
    where,
    zeros,
    zeros_like,
)
from agtape.array_api import (
    __array_namespace_info__,
    can_cast,
    cumulative_prod,
    cumulative_sum,
    diff,
    finfo,
    iinfo,
    isdtype,
    result_type,
    searchsorted,
)
from agtape.checkpoint import checkpoint, is_replaying
from agtape.custom import CustomOp, custom_gradient, custom_op
from agtape.functional import grad, hvp, jvp, value_and_grad, vjp
from agtape.memory import last_backward, last_plan, memory_stats, plan_cache_stats
from agtape.memory.estimate import estimate_memory
from agtape.memory.tape_report import tape_memory
from agtape.memory.timeline import memory_timeline
from agtape.options import options
from agtape.placement import adapters, device, selftest, tune
from agtape.profiling import profile
from agtape.serialization import load, save
from agtape.transfers import transfers

newaxis = None

# NumPy's, PyTorch's and the array API's other names of the same functions.
absolute = abs
acos = arccos
acosh = arccosh
asin = arcsin
asinh = arcsinh
atan = arctan
atan2 = arctan2
atanh = arctanh
amax = max
amin = min
array = tensor
bitwise_invert = bitwise_not
invert = bitwise_not
concatenate = concat
permute_dims = permute
power = pow
true_divide = divide
mod = remainder
left_shift = bitwise_left_shift
right_shift = bitwise_right_shift
ag_tensor = tensor
ag_param = param
clamp = clip
unsqueeze = expand_dims
mul = multiply
sub = subtract
div = divide
neg = negative
ravel = flatten
swish = silu
bool = bool_
