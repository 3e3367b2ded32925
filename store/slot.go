package store

import (
	"fmt"
	"strings"
)

// Slots is the number of slots of a Redis or Valkey cluster.
const Slots = 16384

// Slot returns the cluster slot of key, from 0 to Slots-1: the CRC16 (XMODEM)
// of its hash tag, or of all of it when it has none, modulo Slots, as the Redis
// Cluster specification defines it.
func Slot(key string) int {
	crc := uint16(0)
	for tag, i := hashTag(key), 0; i < len(tag); i++ {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^tag[i]]
	}
	return int(crc % Slots)
}

// CheckKeys returns an [ErrCrossSlot] that names two of the keys if keys do not
// all share one slot, and an error if there are none. Every store calls it
// before it runs or sends anything.
func CheckKeys(keys []string) error {
	if len(keys) == 0 {
		return errNoKeys
	}
	if len(keys) == 1 {
		return nil
	}
	first := hashTag(keys[0])
	for _, key := range keys[1:] {
		if hashTag(key) != first && Slot(key) != Slot(keys[0]) {
			return fmt.Errorf("%w: %q and %q do not", ErrCrossSlot, strings.Clone(keys[0]), strings.Clone(key))
		}
	}
	return nil
}

// hashTag returns the part of key that is hashed: what stands between the first
// { and the first } after it, unless that is nothing.
func hashTag(key string) string {
	open := strings.IndexByte(key, '{')
	if open < 0 {
		return key
	}
	if n := strings.IndexByte(key[open+1:], '}'); n > 0 {
		return key[open+1 : open+1+n]
	}
	return key
}

var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()
