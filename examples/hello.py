import sys

print("hello from python", *sys.argv[1:])
