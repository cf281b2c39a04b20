from tests.support.pages import browser, explorer, open_page, service

__all__ = ["browser", "explorer", "open_page", "service"]
