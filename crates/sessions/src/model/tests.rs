//! A relay between a client and an endpoint that are both written here.
