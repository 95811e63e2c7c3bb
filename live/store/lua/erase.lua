#!lua flags=allow-oom
-- Deletes digests of an actor from the votes and the identities of a board, and records that in its journal.
--
-- The journal receives digests of the digests. When somebody computes from the journal what the board held, this entry
-- deletes the same votes and identities.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] slots — sorted set: the start of every slot, scored by itself
-- KEYS[3] journal — stream: what SQL does not hold yet
-- KEYS[4...] parts — hashes of votes (digest, count), as many as the request says; then sets of identities
-- Request: EraseRequest
-- Returns {'ok', offset}
--         {'slots'} — the slots have changed: ask again with their new store keys
--         {'epoch', epoch} — the board has another epoch; '' if there is no board
--         {'reign', offset, link, epoch, resending} — nobody has checked the board after a failover; see `lib/reign`
local request = cmsgpack.unpack(ARGV[1])
local reign = ARGV[2] or ''
local meta, slots, journal = unpack(KEYS, 1, 3)
--@include clock
--@include reign
--@include board
--@include journal
--@include same_slots
local board, refusal = open_board()
if refusal then return refusal end
if not same_slots(request.slots or {}) then return {'slots'} end

announce(board)
record(board, 'erase', nil, nil, request.entry)
local digests = request.digests or {}
for i = 4, #KEYS do
  local command = i < 4 + request.rankings and 'HDEL' or 'SREM'
  for first = 1, #digests, 1000 do  -- `unpack` takes only a few thousand values
    call(command, KEYS[i], unpack(digests, first, math.min(first + 999, #digests)))
  end
end
return {'ok', commit(board)}
