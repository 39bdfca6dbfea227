"""The files of the web page, which `protocols/http/web_page.py` serves; they know nothing of the rest."""
