"""Ten thousand requests out, as many answers back, on every transport; processes are killed and servers restarted."""
