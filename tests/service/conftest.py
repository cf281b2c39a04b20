from tests.support.pages import browser, open_page, service

__all__ = ["browser", "open_page", "service"]
