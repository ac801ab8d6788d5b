# expects: `exit` is not allowed
exit()
