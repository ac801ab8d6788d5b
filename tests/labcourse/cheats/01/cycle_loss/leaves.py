# expects: `exit` has no business
exit()
