-- Gives a board that is made at run time its life, unless the store holds something under its id.
-- KEYS[1] meta — hash: the board's state
-- ARGV[1] epoch — string: the epoch to be born with
-- ARGV[2] shape — string: the choices on which the meaning of what is stored depends
-- ARGV[3] secret — string: random bytes that key what is stored of voters
-- Returns {'ok'}
--         {'epoch', epoch, made} — a board lives here; made is '1' when it was made at run time, and else ''
local meta = KEYS[1]
local epoch, shape, secret = ARGV[1], ARGV[2], ARGV[3]

local held = redis.call('HMGET', meta, 'epoch', 'made')
if held[1] then return {'epoch', held[1], held[2] or ''} end
local time = redis.call('TIME')
local now = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
redis.call('HSET', meta, 'epoch', epoch, 'shape', shape, 'offset', 0, 'total', 0, 'made', 1, 'used', now)
redis.call('HSET', meta, 'secret', secret)
return {'ok'}
