"""What `hipq demo` shows: a small shop that works with hipq, and a pretend bank in another process.

The bank (`bank.py`) knows nothing of hipq; `teller.py` is how the shop speaks to it, `reception.py` where it calls
back. `shop.py` has the job types, `story.py` what is added when, `tally.py` what hipq's events come to, `news.py` the
same in words; `run.py` puts them together. `view.py` shows it while it runs; `summary.py` asks all of them afterwards
whether it adds up.
"""
