"""Addresses of the books."""

from django.urls import URLPattern, path

from portal.views import books, books_lines

urlpatterns: list[URLPattern] = [
    path("books/", books.books, name="books"),
    path("books/chart/", books.chart, name="books-chart"),
    path("books/hours/", books.hours, name="books-hours"),
    path("books/lines/", books_lines.lines, name="books-lines"),
]
