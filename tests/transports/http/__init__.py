"""HTTP against real servers: good ones, slow ones, broken ones, and ones that mean harm."""
