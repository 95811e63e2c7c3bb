#!lua flags=allow-oom
-- Gives a board another life with what it holds, so that no position of its old one means anything any more.
-- KEYS[1] meta — hash: the board's state
-- ARGV[1] epoch — string: the epoch to go on with
-- ARGV[2] channel — string: where the change is announced
-- Returns {'ok', offset}
--         {'none'} — there is no board
local meta = KEYS[1]
local epoch, channel = ARGV[1], ARGV[2]

local state = redis.call('HMGET', meta, 'epoch', 'offset')
if not state[1] then return {'none'} end
local offset = string.format('%.0f', tonumber(state[2] or 0) + 1)
redis.call('PUBLISH', channel, epoch .. ':' .. offset)
redis.call('HSET', meta, 'epoch', epoch, 'offset', offset)
return {'ok', offset}
