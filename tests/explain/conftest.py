from tests.support.pages import browser, open_page, show

__all__ = ["browser", "open_page", "show"]
