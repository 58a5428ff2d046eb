// Package uuid has the part of twinj/uuid's first interface that the Session Manager plugin was written for.
package uuid

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strings"
)

// UUID is 128 bits.
type UUID interface {
	Bytes() []byte
	String() string
}

// CleanHyphen is the only format there is here: 8-4-4-4-12.
const CleanHyphen = "%x-%x-%x-%x-%x"

type array [16]byte

// SwitchFormat does nothing.
func SwitchFormat(string) {}

// New is a UUID of 16 bytes.
func New(data []byte) UUID {
	var made array
	copy(made[:], data)
	return &made
}

// NewV4 is a random UUID.
func NewV4() UUID {
	var made array
	if _, err := rand.Read(made[:]); err != nil {
		panic(err)
	}
	made[6] = made[6]&0x0f | 0x40
	made[8] = made[8]&0x3f | 0x80
	return &made
}

// Parse reads a UUID with hyphens.
func Parse(text string) (UUID, error) {
	data, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(data) != 16 {
		return nil, errors.New("no UUID: " + text)
	}
	return New(data), nil
}

func (made *array) Bytes() []byte { return made[:] }

func (made *array) String() string {
	text := hex.EncodeToString(made[:])
	return strings.Join([]string{text[:8], text[8:12], text[12:16], text[16:20], text[20:]}, "-")
}
