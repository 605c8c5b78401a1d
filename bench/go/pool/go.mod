module cove.bench/pool

go 1.22
