#!lua flags=allow-oom
-- Notes that somebody uses a board.
-- KEYS[1] meta — hash: the board's state
-- ARGV[1] epoch — string: the epoch of the board that is used
-- Returns {'ok'}
--         {'epoch', epoch} — the board lives another life; '' for none
local meta = KEYS[1]
local held = redis.call('HGET', meta, 'epoch')
if held ~= ARGV[1] then return {'epoch', held or ''} end
local time = redis.call('TIME')
redis.call('HSET', meta, 'used', string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)))
return {'ok'}
