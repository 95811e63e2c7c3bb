-- Sets the sums that a board keeps beside its ranking, if it still stands where they were counted.
-- KEYS[1] meta — hash: the board's state
-- ARGV[1] offset — integer: where the sums were counted
-- ARGV[2] total — integer: sum of all scores, less than `high` has of it
-- ARGV[3] high — integer: units of 2^40 of that sum
-- ARGV[4] channel — string: where the change is announced
-- ARGV[5] suffix — string: what the names of the table's sums end with
-- Returns {'ok', offset} or {'moved', offset}
local meta = KEYS[1]
local offset, total, high, channel, suffix = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local state = redis.call('HMGET', meta, 'epoch', 'offset')
if state[2] ~= offset then return {'moved', state[2] or ''} end
offset = string.format('%.0f', tonumber(offset) + 1)
redis.call('PUBLISH', channel, state[1] .. ':' .. offset)
redis.call('HSET', meta, 'offset', offset, 'total' .. suffix, total, 'high' .. suffix, high)
return {'ok', offset}
