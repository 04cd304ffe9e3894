// Inverses of the trigonometric and hyperbolic functions.
// Limit: 20 to 60 float instructions for each element.

// asin(s) for 0 <= s <= 1/2 with s^2 given (Cephes asinf).
fn asin_core4(s: vec4f, z: vec4f) -> vec4f {
    var p = vec4f(4.2163199048e-2);
    p = p * z + 2.4181311049e-2;
    p = p * z + 4.5470025998e-2;
    p = p * z + 7.4953002686e-2;
    p = p * z + 1.6666752422e-1;
    return p * z * s + s;
}

fn asin4(x: vec4f) -> vec4f {
    let a = abs4(x);
    let is_large = less4(vec4f(0.5), a);
    let z = select(a * a, 0.5 * (1.0 - a), is_large);
    let y = asin_core4(select(a, sqrt4(z), is_large), z);
    let out = with_sign4(select(y, 1.5707963267948966 - 2.0 * y, is_large), x);
    return select(select(out, x, is_zero4(x)), nan4(), less4(vec4f(1.0), a) | is_nan4(x));
}

fn acos4(x: vec4f) -> vec4f {
    let a = abs4(x);
    let is_large = less4(vec4f(0.5), a);
    let z = select(a * a, 0.5 * (1.0 - a), is_large);
    let y = asin_core4(select(a, sqrt4(z), is_large), z);
    let is_left = is_negative4(x);
    let near = 1.5707963267948966 - select(y, -y, is_left);
    let far = select(2.0 * y, 3.141592653589793 - 2.0 * y, is_left);
    return select(select(near, far, is_large), nan4(), less4(vec4f(1.0), a) | is_nan4(x));
}

// atan(a) for a >= 0 (Cephes atanf).
fn atan_core4(a: vec4f) -> vec4f {
    let is_high = less4(vec4f(2.414213562373095), a);
    let is_middle = less4(vec4f(0.4142135623730950), a) & !is_high;
    let safe = select(a, vec4f(1.0), is_inf4(a));
    let folded = select(safe, (safe - 1.0) / (safe + 1.0), is_middle);
    let x = select(folded, select(-1.0 / safe, vec4f(0.0), is_inf4(a)), is_high);
    let start = select(select(vec4f(0.0), vec4f(0.7853981633974483), is_middle), vec4f(1.5707963267948966), is_high);
    let z = x * x;
    var p = vec4f(8.05374449538e-2);
    p = p * z - 1.38776856032e-1;
    p = p * z + 1.99777106478e-1;
    p = p * z - 3.33329491539e-1;
    return start + (p * z * x + x);
}

fn atan4(x: vec4f) -> vec4f {
    return select(with_sign4(atan_core4(abs4(x)), x), x, is_zero4(x) | is_nan4(x));
}

// The angle of the point (x, y).
fn atan2_4(y: vec4f, x: vec4f) -> vec4f {
    let a = abs4(y);
    let b = abs4(x);
    let is_steep = less4(b, a);
    let quotient = divide4(select(a, b, is_steep), select(b, a, is_steep));
    let same = (is_zero4(y) & is_zero4(x)) | (is_inf4(y) & is_inf4(x));
    let t = select(quotient, select(vec4f(0.0), vec4f(1.0), is_inf4(x)), same);
    let slope = atan_core4(t);
    let first = select(slope, 1.5707963267948966 - slope, is_steep);
    let half = select(first, 3.141592653589793 - first, bitcast<vec4u>(x) >= vec4u(0x80000000u));
    return select(with_sign4(half, y), nan4(), is_nan4(x) | is_nan4(y));
}

fn asinh4(x: vec4f) -> vec4f {
    let a = abs4(x);
    let is_large = less4(vec4f(1e8), a);
    let c = select(a, vec4f(1.0), is_large | is_nan4(x));
    let near = log1p_4(c + c * c / (1.0 + sqrt(1.0 + c * c)));
    let y = with_sign4(select(near, log4(a) + 0.6931471805599453, is_large), x);
    return select(y, x, is_zero4(x) | is_nan4(x));
}

fn acosh4(x: vec4f) -> vec4f {
    let is_large = less4(vec4f(1e8), x);
    let t = select(max(x - 1.0, vec4f(0.0)), vec4f(1.0), is_large | is_nan4(x));
    let y = select(log1p_4(t + sqrt4(t * (t + 2.0))), log4(x) + 0.6931471805599453, is_large);
    return select(y, nan4(), less4(x, vec4f(1.0)) | is_nan4(x));
}

fn atanh4(x: vec4f) -> vec4f {
    let a = abs4(x);
    let is_edge = a == vec4f(1.0);
    let c = select(a, vec4f(0.0), is_edge | !less4(a, vec4f(1.0)));
    let y = select(0.5 * log1p_4((c + c) / (1.0 - c)), infinity4(), is_edge);
    let out = select(with_sign4(y, x), x, is_zero4(x));
    return select(out, nan4(), less4(vec4f(1.0), a) | is_nan4(x));
}
