"""Owns how a module is shown: an indented tree as text, and a tree that folds as HTML."""

from html import escape


def as_text(module):
    """The module and its children, one a line, as PyTorch prints them."""
    extra = module.extra_repr()
    lines = [_indented(f"({name}): {as_text(child)}") for name, child in module._modules.items() if child is not None]
    name = type(module).__name__
    if not lines:
        return f"{name}({extra})"
    head = f"{name}(" if not extra else f"{name}(\n  {extra}"
    return "\n".join([head, *lines, ")"])


def as_html(module):
    """The module as nested <details> elements with the number of parameters in each."""
    return f'<div style="font-family:monospace">{_node("", module)}</div>'


def _node(name, module):
    count = sum(p.size for p in module.parameters())
    label = (
        escape(f"({name}): " if name else "") + f"<b>{escape(type(module).__name__)}</b>({escape(module.extra_repr())})"
    )
    label += f" <small>{count:,} parameters</small>"
    rows = [
        _row(n, t, kind)
        for kind, named in (("parameter", module._parameters), ("buffer", module._buffers))
        for n, t in named.items()
        if t is not None
    ]
    rows += [_node(n, child) for n, child in module.named_children()]
    if not rows:
        return f"<div>{label}</div>"
    return f'<details open><summary>{label}</summary><div style="margin-left:1.5em">{"".join(rows)}</div></details>'


def _row(name, tensor, kind):
    frozen = ", frozen" if kind == "parameter" and not tensor.requires_grad else ""
    return f"<div>{escape(name)}: {kind} {escape(str(tuple(tensor.shape)))} {escape(str(tensor.dtype))}{frozen}</div>"


def _indented(text):
    return "  " + text.replace("\n", "\n  ")
