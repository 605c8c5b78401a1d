module cove.bench/buffers

go 1.22
