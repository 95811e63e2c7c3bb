-- Drops some keys of a board that is no more; a board that was born meanwhile under the same id is left alone.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2...] old — keys to drop; the first call drops meta, so that no other script works on the board any more
-- ARGV[1] epoch — string: the epoch of the board that is to go
-- Returns {'ok'}
--         {'epoch', epoch} — another board lives here
local meta, epoch = KEYS[1], ARGV[1]

local held = redis.call('HGET', meta, 'epoch')
if held and held ~= epoch then return {'epoch', held} end
for i = 2, #KEYS do redis.call('UNLINK', KEYS[i]) end
return {'ok'}
