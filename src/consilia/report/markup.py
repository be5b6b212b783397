"""HTML that cannot forget to escape: whatever is not `Html` already is text."""

import html


class Html(str):
    """Markup. Only this module makes it from text."""

    __slots__ = ()


def tag(name: str, *children: str, **attributes: str | None) -> Html:
    """Return an element; text children and attribute values are escaped. `class_` stands for class, `_` for `-`."""
    marks = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{marks}>{join(*children)}</{name}>")


def join(*children: str) -> Html:
    """Return children one after the other, text escaped."""
    return Html("".join(child if isinstance(child, Html) else html.escape(child) for child in children))


def trusted(markup: str) -> Html:
    """Mark text as markup: for our own style sheet and for figures whose texts matplotlib has escaped."""
    return Html(markup)
