"""The commands of the command line, and the options that several of them share."""
