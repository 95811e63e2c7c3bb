#!lua flags=allow-oom
-- Withdraws a member from a contest, unless it has votes.
-- KEYS meta, entrants
-- KEYS ranking — sorted set: name, score, of the newest period
-- KEYS reached, journal
-- Request: WithdrawRequest
-- Returns {'ok', offset, withdrawn} — withdrawn is 0 when the member was not registered
--         {'voted'} — a member that has votes stays
--@include journal
--@include ruled
local member = request.member
local name = request.tagged and (call('HGET', reached, member) or '') .. member or member
if call('ZSCORE', ranking, name) then return {'voted'} end
if call('HEXISTS', entrants, member) == 0 then return {'ok', string.format('%.0f', board.offset), 0} end

announce(board)
record(board, 'withdraw')
call('HDEL', entrants, member)
return {'ok', commit(board), 1}
