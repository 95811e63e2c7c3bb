-- Step: does the member of a correction still hold what the caller has read? Somebody else may have corrected it too.
if request.held then
  local read = request.held
  if not same_slots(read.starts) then return {'changed'} end
  for i, value in ipairs(read.values) do
    if (call('HGET', held[i], groups[1].members[1]) or '') ~= value then return {'changed'} end
  end
end
