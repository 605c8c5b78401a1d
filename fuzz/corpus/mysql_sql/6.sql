SELECT "a" 'b\'c' -- d
, `e`, 0x41, N'f'