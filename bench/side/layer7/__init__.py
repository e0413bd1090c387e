"""Experiments with requests: load balancers, proxies and words in pages, and the web server and its clients."""
