from mpprof_dashboards.pages import PAGES


def test_the_page_is_in_the_navigation() -> None:
    assert [page.title for page in PAGES][-1] == "Notes"
