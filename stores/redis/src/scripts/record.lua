-- KEYS[1] is the record, KEYS[2] the set of all names.

-- Returns the record, nil if the key does not exist, or 'foreign' if it does not hold a record.
local function load()
  local held = redis.call('HMGET', KEYS[1], 'format', 'record', 'run', 'replid')
  if not held[1] and redis.call('EXISTS', KEYS[1]) == 0 then
    return nil
  end
  if held[1] ~= '1' or not held[2] or not held[3] or not held[4] then
    return 'foreign'
  end
  return { record = held[2], replid = held[4] }
end
