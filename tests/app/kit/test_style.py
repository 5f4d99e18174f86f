import pytest
from playwright.sync_api import Browser

from app.router import CSS
from app.texts import markup
from tests.support.build import chain
from tmmu_core.plans.making.engine import plan_graph


@pytest.mark.browser
@pytest.mark.parametrize("page_size", [0, 4096])
def test_narrow_table_of_arenas_omits_headroom_and_unused_at_peak(browser: Browser, page_size: int) -> None:
    arenas = {name: {"page_size": page_size} for name in ("activations", "parameters", "gradients")}
    plan = plan_graph(chain(2), arenas=arenas).plan
    page = browser.new_page(viewport={"width": 900, "height": 400})
    page.set_content(f"<style>{CSS.read_text()}</style>{markup.arena_table(plan.arenas, slots=True)}")
    hidden = page.locator("th:not(:visible)").all_text_contents()
    page.close()
    assert hidden == ["headroom", "unused at peak"]
