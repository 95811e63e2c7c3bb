#!lua flags=allow-oom
-- Ends the life of a board that nobody has used for a while. Without its state no script works on it any more.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] gone — hash: the state of a board that is no more
-- ARGV[1] epoch — string: the epoch of the board
-- ARGV[2] idle — milliseconds: for how long nobody has to have used it
-- Returns {'left'} — now, or before
--         {'used', wait} — it was used; wait is milliseconds until it can be over
--         {'epoch', epoch} — the board lives another life
local meta, gone = KEYS[1], KEYS[2]
local epoch, idle = ARGV[1], tonumber(ARGV[2])

local state = redis.call('HMGET', meta, 'epoch', 'used')
if not state[1] then return {'left'} end
if state[1] ~= epoch then return {'epoch', state[1]} end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local wait = tonumber(state[2] or 0) + idle - now
if wait > 0 then return {'used', string.format('%.0f', wait)} end
redis.call('RENAME', meta, gone)
return {'left'}
