#!lua flags=allow-oom
-- Withdraws a member from a contest, unless it has votes.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] entrants — hash: member, JSON
-- KEYS[3] ranking — sorted set: name, score, of the newest period
-- KEYS[4] reached — hash: member, tag
-- KEYS[5] journal — stream: what SQL does not hold yet
-- Request: WithdrawRequest
-- Returns {'ok', offset, withdrawn} — withdrawn is 0 when the member was not registered
--         {'voted'} — a member that has votes stays
--         {'epoch', epoch} — the board has another epoch; '' if there is no board
--         {'reign', offset, link, epoch, resending} — nobody has checked the board after a failover; see `lib/reign`
local packed = ARGV[1]
local request = cmsgpack.unpack(packed)
local reign = ARGV[2] or ''
local meta, entrants, ranking, reached, journal = unpack(KEYS)
--@include clock
--@include reign
--@include board
--@include journal
local board, refusal = open_board()
if refusal then return refusal end
local member = request.member
local name = request.tagged and (call('HGET', reached, member) or '') .. member or member
if call('ZSCORE', ranking, name) then return {'voted'} end
if call('HEXISTS', entrants, member) == 0 then return {'ok', string.format('%.0f', board.offset), 0} end

announce(board)
record(board, 'withdraw')
call('HDEL', entrants, member)
return {'ok', commit(board), 1}
