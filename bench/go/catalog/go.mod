module cove.bench/catalog

go 1.22

require cove.bench/pool v0.0.0

replace cove.bench/pool => ../pool
