-- Step: forget the totals of all rankings. Those of rankings that have gone are in no request.
for _, field in ipairs(call('HKEYS', meta)) do
  if string.find(field, '^total') or string.find(field, '^high') then call('HDEL', meta, field) end
end
