"""How lists of the API are cut into pages."""

from rest_framework.pagination import PageNumberPagination


class Pages(PageNumberPagination):
    """100 rows a page, up to 1,000 where a client asks for them (`?page_size=`)."""

    page_size = 100
    page_size_query_param = "page_size"
    max_page_size = 1000
