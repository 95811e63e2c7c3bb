-- Step: find out whether the request was applied before. Each writer numbers its requests.
local last = call('HGET', writers, request.writer)
if last then
  local sequence, offset = string.match(last, '^(%d+) (%d+)')
  sequence = tonumber(sequence)
  if sequence == request.sequence then return {'ok', offset} end
  if sequence > request.sequence then return {'stale'} end
end
