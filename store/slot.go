package store

import (
	"fmt"
	"strings"
)

// Slots is the number of slots of a Redis or Valkey cluster.
const Slots = 16384

// Slot returns the cluster slot of key, from 0 to Slots-1. The Redis Cluster
// specification defines it as the CRC16 (XMODEM) of the key's hash tag, modulo Slots. If
// the key has no hash tag, it is the CRC16 of the whole key, modulo Slots.
func Slot(key string) int {
	crc := uint16(0)
	for tag, i := hashTag(key), 0; i < len(tag); i++ {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^tag[i]]
	}
	return int(crc % Slots)
}

// CheckKeys checks the keys of one [Eval]. If they do not have the same slot, it
// returns an [ErrCrossSlot] that names two of them. If there are no keys, it returns
// another error. Every store must call CheckKeys before it runs or sends a script.
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
			return fmt.Errorf("%w: %q and %q do not: give them one hash tag", ErrCrossSlot, strings.Clone(keys[0]), strings.Clone(key))
		}
	}
	return nil
}

// hashTag returns the part of key that is hashed: the text between the first {
// and the first } after it, or the whole key if there is no such text.
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
