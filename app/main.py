"""Main module of the explorer. ``tmmu explore`` runs it with ``streamlit run app/main.py -- [FILE…]``.

Streamlit imports this module to create the server with the middleware of ``serving``, and runs it as a script to draw a
page. A worker process imports it as ``__mp_main__``; then this module only sets ``sys.path``.
"""

import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[1])
if ROOT not in sys.path:  # Streamlit runs this file as a script, without the root of the project in sys.path
    sys.path.insert(0, ROOT)

if __name__ == "__main__":
    from app.router import draw

    draw()
elif __name__ != "__mp_main__":
    from streamlit.runtime.pages_manager import PagesManager
    from streamlit.starlette import App

    from app.serving import guard

    PagesManager.uses_pages_directory = False  # st.navigation lists the pages, not the folder ``pages``
    app = App(__file__, middleware=guard.MIDDLEWARE, lifespan=guard.lifespan)
