"""One node of a cluster, put together: broker, controller and its part in the quorum, over the machine it runs on."""
