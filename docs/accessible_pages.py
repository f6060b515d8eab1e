"""A hook of MkDocs for screen readers and keyboards: names the theme's search dialog, and lets keys scroll content."""


def on_post_page(output: str, **_: object) -> str:
    """Return the page with a name for its dialog, and with code blocks and tables that take the focus."""
    changes = {
        'role="dialog"': 'role="dialog" aria-label="Search"',
        "<pre>": '<pre tabindex="0">',
        "<table>": '<div class="scrolled" tabindex="0"><table>',
        "</table>": "</table></div>",
    }
    for old, new in changes.items():
        output = output.replace(old, new)
    return output
