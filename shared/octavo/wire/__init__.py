"""ZMQ: the token path, in-service IPC, load reports and events.  Only this package imports zmq."""
