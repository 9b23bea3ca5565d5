"""What `hipq demo` shows: a small shop that works with hipq, and a pretend bank in another process.

The bank (`bank.py`) knows nothing of hipq. The shop talks to it, and gets its answers, through `exchange.py`.
`shop.py` has the job types, `story.py` adds jobs, `tally.py` counts hipq's events and `news.py` puts them into words;
`run.py` puts all together. `view.py` shows the run, and `summary.py` checks afterwards whether all counts agree.
"""
