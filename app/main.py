"""The explorer's main module: ``streamlit run app/main.py -- [FILE…]`` (``tmmu explore`` does just that).

Imported, it is the server with the middleware of ``serving``; run by that server as its script, it draws a page. A
worker process imports the main module under the name ``__mp_main__`` and needs nothing of it.
"""

import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[1])
if ROOT not in sys.path:  # run as a script, the packages beside it must be found
    sys.path.insert(0, ROOT)

if __name__ == "__main__":
    from app.router import draw

    draw()
elif __name__ != "__mp_main__":
    from streamlit.runtime.pages_manager import PagesManager
    from streamlit.starlette import App

    from app.serving import guard

    PagesManager.uses_pages_directory = False  # the folder ``pages`` is ours: its pages are those of ``st.navigation``
    app = App(__file__, middleware=guard.MIDDLEWARE, lifespan=guard.lifespan)
