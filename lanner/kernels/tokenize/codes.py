"""What a field or row turned out to be; negative codes are errors."""

PRESENT = 0
MISSING = 1
FIELDS = -1  # the row has too few or too many fields
LABEL = -2  # not an allowed label
DIGIT = -3  # not an integer
OVERFLOW = -4  # an integer beyond 64 bits
HEX_DIGIT = -5  # not hexadecimal
HEX_LENGTH = -6  # more than eight hexadecimal digits
