"""A hook of MkDocs that names the search dialog of the theme, which screen readers announce."""


def on_post_page(output: str, **_: object) -> str:
    """Return the page with a name for its dialog."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')
