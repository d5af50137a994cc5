"""All SQL that pages and the command line run: functions of a Reader, one module per page.

What a metric means is in `telemetry.views`, once; queries select from those views, choose a span
of time and bin. Times leave as seconds from a stated zero: nanoseconds are for joins.
"""
