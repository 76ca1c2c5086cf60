"""The transfer machine: producer and consumer of transfers as pure state.  Time, ids and epochs are arguments."""
