#!lua
-- Makes what is loaded beside a board the contents of the board, in one step.
--
-- The board keeps its epoch, its offset goes on, and its edition grows, so no position of the old contents is valid.
-- Identities and the numbers of batches stay. The caller deletes the old contents in steps, because freeing a million
-- elements at once delays every command for half a second.
-- KEYS meta, slots, journal
-- KEYS listed — set: the store keys beside the board
-- KEYS dropped, log
-- KEYS names... — by three: beside the board, of the board, and for the old contents. The last do not exist yet: so
--         while a Cluster moves the hash slot, the server refuses the whole script, and not one of its commands
-- Request: SwapRequest
-- Returns {'ok', offset}
--         {'moved', link} — the journal has other entries
--         {'slots'} — the slots have changed: ask again with their store keys
--         {'due'} — something that the new contents lack has not left the window of the board yet
--         {'taken'} — the swap has ended, or has another round
--         {'incomplete', key, held, size} — a store key beside the board does not hold what was loaded
local FIRST = 7
--@include journal
--@include same_slots
--@include opened
if call('HGET', meta, 'swap') ~= request.swap then return {'taken'} end
local link = link_of(board)
if link ~= request.link then return {'moved', link} end
if not same_slots(request.starts or {}) then return {'slots'} end
-- When something leaves the window, members may get or lose tags, and only an entry of the journal says so.
if request.waits then
  local late = request.oldest and call('ZCOUNT', slots, '-inf', '(' .. digits(request.oldest)) or 0
  if request.left then late = late + call('ZCOUNT', log, '-inf', digits(request.left)) end
  if late > 0 then return {'due'} end
end
local SIZES = {zset = 'ZCARD', hash = 'HLEN'}
for i, size in ipairs(request.sizes) do
  local beside = KEYS[FIRST + 3 * (i - 1)]
  local count = SIZES[call('TYPE', beside).ok]
  local held = count and call(count, beside) or 0
  if held ~= size then return {'incomplete', beside, held, size} end
end

announce(board)
for i, size in ipairs(request.sizes) do
  local beside, live, old = unpack(KEYS, FIRST + 3 * (i - 1), FIRST + 3 * i - 1)
  if call('EXISTS', live) == 1 then
    call('RENAME', live, old)
    call('SADD', dropped, old)
  end
  if size > 0 then call('RENAME', beside, live) end
  call('SREM', listed, beside)
end
--@include no_totals
for i = 1, #request.totals, 3 do
  local suffix, total, high = unpack(request.totals, i, i + 2)
  call('HSET', meta, 'total' .. suffix, total, 'high' .. suffix, high)
end
call('HDEL', meta, 'paused', 'swap')
local edition = call('HINCRBY', meta, 'edition', 1)
if request.ruled then
  call('HSET', meta, 'ruled', edition, 'shape', request.shape)
  if request.newest then call('HSET', meta, 'newest', request.newest) else call('HDEL', meta, 'newest') end
end
-- By an event clock, `latest` says which times are in the past of the swap. `oldest` and `left` say which members have a
-- score, and so a tag.
record(board, 'swap', nil, nil, cmsgpack.pack({edition = edition, taken = request.taken, ruled = request.ruled,
  latest = board.latest, oldest = request.oldest, left = request.left}))
return {'ok', commit(board)}
