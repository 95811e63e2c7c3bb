#!lua flags=allow-oom
-- Brings a board in line with its definition: whether it is frozen; and tells everybody that it is to be looked at.
-- KEYS[1] meta — hash: the board's state
-- ARGV[1] epoch — string: the epoch of the board that is defined
-- ARGV[2] revision — integer: of the definition; an older one than the board has seen changes nothing
-- ARGV[3] frozen — "1" when the board takes no events
-- ARGV[4] channel — string: where the change is announced
-- Returns {'ok', offset}
--         {'epoch', epoch} — the board lives another life; '' for none
local meta = KEYS[1]
local epoch, revision, frozen, channel = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

local state = redis.call('HMGET', meta, 'epoch', 'offset', 'revision')
if state[1] ~= epoch then return {'epoch', state[1] or ''} end
if tonumber(state[3] or 0) >= revision then return {'ok', state[2]} end

-- Announced first, for it could be forbidden; subscribers hear of it when the script has ended.
local offset = string.format('%.0f', tonumber(state[2]) + 1)
redis.call('PUBLISH', channel, epoch .. ':' .. offset)
redis.call('HSET', meta, 'offset', offset, 'revision', ARGV[2])
if frozen == '1' then redis.call('HSET', meta, 'frozen', 1) else redis.call('HDEL', meta, 'frozen') end
return {'ok', offset}
