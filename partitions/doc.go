// Package partitions manages the time partitions of one parent table.
package partitions
